"""Objects on the command line: names, transfers, and the S3 client behind them."""

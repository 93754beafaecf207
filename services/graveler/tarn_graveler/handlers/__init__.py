"""The rpcs of graveler: they parse requests, call the other packages, and build responses."""

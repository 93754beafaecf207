"""XML documents of S3: those that clients send (`xml_in`) and those that they get (`xml_out`)."""

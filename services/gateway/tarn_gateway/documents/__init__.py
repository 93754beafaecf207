"""S3's XML documents: parsing those of clients (`xml_in`) and rendering answers (`xml_out`)."""

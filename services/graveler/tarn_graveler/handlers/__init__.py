"""The rpcs of graveler: they parse requests, check permissions, call the other packages, and build
responses.
"""

"""The rpcs of graveler: they read a request, ask for permission, call the other rooms, and write the answer."""

"""What grows with the load, the lake and the number of processes: counted here, and a model of larger installations."""

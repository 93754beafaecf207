"""The `tarn` command: the only part that reads arguments, the environment and the terminal."""

"""The `tarn` command. Only this package reads arguments, the environment and the terminal."""

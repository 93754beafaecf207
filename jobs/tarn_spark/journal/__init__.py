"""The replay of the journal in Spark, for journals that one process would take too long for."""

"""Stands before the real pandas in the path of the processes of Tarn: no image of Tarn holds pandas.

The tests of other clients need it in the same environment, and pyarrow imports it whenever it finds it, which takes
half a second of each process.
"""

raise ImportError("Tarn runs without pandas")

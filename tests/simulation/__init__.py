"""The whole server in one thread, from one seed: its disk, its clock, its network and its clients are simulated.

`python -m simulation --seed n` repeats a run; docs/proof.md says what is simulated and what is checked.
That program changes `os`, `time`, threads and RocksDB for its whole process, so tests start it as another one.
"""

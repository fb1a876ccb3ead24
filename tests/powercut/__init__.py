"""Power cuts of a real server: what it did to its files is recorded, and states that a power cut may leave are tried.

`recording` runs a server under a recorder, `images` makes the states, `expected` says what must be in one, and `opened`
what is.
"""

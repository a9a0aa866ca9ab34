"""The engine from outside: the same calls, over a server's runs API or on a store.

`Source` says what can be called; `ServerSource` and `StoreSource` are its two ways.
"""

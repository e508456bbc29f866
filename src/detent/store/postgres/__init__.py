"""The ledger in a schema of a PostgreSQL database, through ``psycopg`` (``pip install 'detent[postgres]'``).

``address`` says where, ``database`` opens connections that are known to be safe to write to, ``statements`` and ``reader`` ask,
``arrays`` and ``store`` write. Nothing is imported here: a home without PostgreSQL loads none of it.
"""

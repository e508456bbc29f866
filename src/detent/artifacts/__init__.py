"""Content-addressed bytes that jobs leave behind and read: in a directory or in S3, and the URLs by which clients get them.

``api`` says what a store of artifacts does and does it in a directory, ``s3`` does it in a bucket, ``content_type`` looks at the bytes because
claims about them are not trusted, and ``signed_url`` decides who may fetch what until when. Not reached yet: ``choose`` and ``s3``; commands
and the server read and write the directory. Nothing is imported here, so that
naming the room costs nothing.
"""

"""Lets schemathesis send what it takes for unknown kinds of bodies: they are bytes like any other."""

import schemathesis

schemathesis.serializer.alias(["application/gzip", "application/offset+octet-stream"], "application/octet-stream")

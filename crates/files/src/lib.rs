//! Where files are kept: a file under its final name is complete.

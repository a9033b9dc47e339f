"""Environments of other libraries, under the libraries' own ids: `gem:ID` and `gym:ID`. See README.md."""

"""Each release's recorded API: read from its wheel, kept as package data, compared by `diff`."""

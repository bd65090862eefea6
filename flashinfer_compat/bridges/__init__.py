"""The mechanisms that adapters compose. Each lives once; none knows which release is installed."""

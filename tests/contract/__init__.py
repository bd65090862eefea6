"""The contract, on the installed release."""

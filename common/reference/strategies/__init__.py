"""The strategies of this mirror, a file each; there is only the oracle."""

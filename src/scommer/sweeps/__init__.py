"""Many runs: grids and searches, on the processes of this machine or on a cluster."""

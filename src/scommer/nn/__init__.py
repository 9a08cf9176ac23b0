"""Networks, their layers, sparse coding, and their weights as one vector."""

"""The three APIs that the server speaks: each reads a request as one `Asked`, and writes one `Answer`."""

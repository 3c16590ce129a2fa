"""Claims jobs and takes them through its decoder and engine processes, reading ahead."""

"""What the example needs beside tensor parallelism: a small language model, its text, processes, a report."""

"""A platform of NumPy arrays and processes that talk over sockets: an adapter at its first milestone.

`processes` and `tensor` stand for the framework; `ops`, `platform` and `conformance` are what an adapter writes.
"""

from hyper_platform_sample.platform import SamplePlatform as SamplePlatform

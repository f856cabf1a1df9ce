"""The MindSpore adapter: registered, so that choosing it says where it stands, but not written yet."""

from hyper_platform_ms.platform import MindSporePlatform as MindSporePlatform

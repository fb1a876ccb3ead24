"""The log lines about peers of HTTP listeners, at a bounded rate: of WebSockets, and of the operator's interface."""

import logging
from typing import Final

from embermq.transport.rate_limited_log import RateLimitedLog

http_log: Final = RateLimitedLog(logging.getLogger("embermq"), "HTTP connections")

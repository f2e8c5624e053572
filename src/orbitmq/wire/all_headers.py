"""All typed headers in one module, for code that needs many families."""

from orbitmq.wire.headers.auth import *
from orbitmq.wire.headers.base import *
from orbitmq.wire.headers.broker import *
from orbitmq.wire.headers.client import *
from orbitmq.wire.headers.group import *
from orbitmq.wire.headers.offset import *
from orbitmq.wire.headers.pop import *
from orbitmq.wire.headers.pull import *
from orbitmq.wire.headers.quota import *
from orbitmq.wire.headers.redrive import *
from orbitmq.wire.headers.route import *
from orbitmq.wire.headers.send import *
from orbitmq.wire.headers.topic import *
from orbitmq.wire.headers.transaction import *
from orbitmq.wire.headers.writer import *

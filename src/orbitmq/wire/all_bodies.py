"""All typed bodies in one module, for code that needs many families."""

from orbitmq.wire.bodies.auth import *
from orbitmq.wire.bodies.base import *
from orbitmq.wire.bodies.client import *
from orbitmq.wire.bodies.group import *
from orbitmq.wire.bodies.ha import *
from orbitmq.wire.bodies.pop import *
from orbitmq.wire.bodies.quota import *
from orbitmq.wire.bodies.redrive import *
from orbitmq.wire.bodies.route import *
from orbitmq.wire.bodies.stats import *
from orbitmq.wire.bodies.topic import *

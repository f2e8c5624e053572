"""Following a change feed, as another broker does."""

from __future__ import annotations

from collections.abc import Callable

from orbitmq.broker.change_feed import ChangeFeed, FeedEntry


def follow(feed: ChangeFeed, follower: Callable[[FeedEntry], object]) -> Callable[[], None]:
    """Call ``follower`` with every change from now on; returns what ends that."""
    return feed.subscribe(lambda table, key, value: follower(feed.entry(feed.sequence, table, key, value)))

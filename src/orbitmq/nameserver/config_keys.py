"""The names of the keys that a namesrv.conf of RocketMQ may hold and that have no effect here.

They are collected like those of the broker (``orbitmq.broker.config_keys``), from the setters of
NamesrvConfig, NettyServerConfig, NettyClientConfig and ControllerConfig.
"""

from __future__ import annotations

_NAMES = """
channelNotActiveInterval clientAsyncSemaphoreValue clientCallbackExecutorThreads
clientChannelMaxIdleTimeSeconds clientCloseSocketIfTimeout clientOnewaySemaphoreValue
clientPooledByteBufAllocatorEnable clientSocketRcvBufSize clientSocketSndBufSize clientWorkerThreads
connectTimeoutMillis controllerDLegerGroup controllerDLegerPeers controllerDLegerSelfId
controllerRequestThreadPoolQueueCapacity controllerStorePath controllerThreadPoolNums controllerType
disableCallbackExecutor disableNettyWorkerGroup electMasterMaxRetryCount enableElectUncleanMaster
enableReconnectForGoAway enableTransparentRetry jraftConfig mappedFileSize
maxReconnectIntervalTimeSeconds metricsLabel
notifyBrokerRoleChanged processReadEvent scanAvailableNameSrv scanInactiveMasterInterval
socksProxyConfig
"""

KNOWN_KEYS = frozenset(_NAMES.split())

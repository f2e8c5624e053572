"""The sentences of pages by their keys, in English and Chinese, with the texts of empty tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

SENTENCES: Final[Mapping[str, tuple[str, str]]] = {
    "health_none": ("No broker is registered.", "没有注册的 Broker。"),
    "health_silent": (
        "{silent} of {all} brokers do not answer.",
        "{all} 个 Broker 中有 {silent} 个无应答。",
    ),
    "health_silent.1": ("The only broker does not answer.", "唯一的 Broker 无应答。"),
    "health_refuses": (
        "{refusing} of {all} brokers refuse to show their status to this user.",
        "{all} 个 Broker 中有 {refusing} 个拒绝该用户查看状态。",
    ),
    "health_refuses.1": (
        "The only broker refuses to show its status to this user.",
        "唯一的 Broker 拒绝该用户查看状态。",
    ),
    "health_lost": ("No master of {names} is online.", "{names} 没有在线的主节点。"),
    "health_full": ("The disk of {name} is {share} full.", "{name} 的磁盘已用 {share}。"),
    "health_late": (
        "The replica of {name} at {address} is not in sync.",
        "{name} 位于 {address} 的副本未同步。",
    ),
    "health_filling": (
        "The disk of {name} is full in about {span} at the present rate.",
        "按当前速率，{name} 的磁盘约 {span} 后写满。",
    ),
    "disk_full_in": (
        "Disks: that of {name} is the first to be full, in about {span} at the present rate.",
        "磁盘：按当前速率，{name} 最先写满，约 {span} 后。",
    ),
    "disk_not_in_sight": (
        "Disks: none gets full at the present rate.",
        "磁盘：按当前速率不会写满。",
    ),
    "disk_not_yet_known": (
        "Disks: not yet known when one will be full; that takes {minutes} minutes of measurement.",
        "磁盘：尚不知道何时写满；需要观察 {minutes} 分钟。",
    ),
    "health_behind": (
        "All {all} brokers answer; group {name} is {lag} messages behind.",
        "全部 {all} 个 Broker 正常；消费组 {name} 积压 {lag} 条消息。",
    ),
    "health_behind.1": (
        "The broker answers; group {name} is {lag} messages behind.",
        "Broker 正常；消费组 {name} 积压 {lag} 条消息。",
    ),
    "health_good": (
        "All {all} brokers answer; no group is behind.",
        "全部 {all} 个 Broker 正常；没有积压。",
    ),
    "health_good.1": ("The broker answers; no group is behind.", "Broker 正常；没有积压。"),
    "health_unknown": (
        "All {all} brokers answer; not all lags are known.",
        "全部 {all} 个 Broker 正常；部分积压未知。",
    ),
    "health_unknown.1": ("The broker answers; not all lags are known.", "Broker 正常；部分积压未知。"),
    "count_clusters": ("{good} of {all} clusters are well.", "{all} 个集群中 {good} 个正常。"),
    "count_brokers": ("{n} brokers.", "{n} 个 Broker。"),
    "count_brokers.1": ("1 broker.", "1 个 Broker。"),
    "count_topics": ("{n} topics.", "{n} 个主题。"),
    "count_topics.1": ("1 topic.", "1 个主题。"),
    "count_groups": ("{n} groups.", "{n} 个消费组。"),
    "count_groups.1": ("1 group.", "1 个消费组。"),
    "count_letters": ("{n} dead letters.", "{n} 条死信。"),
    "count_letters.1": ("1 dead letter.", "1 条死信。"),
    "count_clients": ("{n} connected clients.", "{n} 个已连接客户端。"),
    "count_clients.1": ("1 connected client.", "1 个已连接客户端。"),
    "count_timers": ("{n} messages wait for their time.", "{n} 条消息在等待投递时间。"),
    "count_timers.1": ("1 message waits for its time.", "1 条消息在等待投递时间。"),
    "count_users": ("{n} users.", "{n} 个用户。"),
    "count_users.1": ("1 user.", "1 个用户。"),
    "audit_kept": (
        "The last {n} changes since this console was started; each is a line of its log, too.",
        "此控制台启动以来的最近 {n} 次修改；日志中也各有一行。",
    ),
    "no_broker_at": ("No broker is registered at {address}.", "{address} 没有注册的 Broker。"),
    "no_topic": ("No broker has the topic {name}.", "没有 Broker 拥有主题 {name}。"),
    "why_unknown": (
        "Why it lags could not be found out in time. Load the page again.",
        "未能及时找出积压原因。请重新加载。",
    ),
    "preview_moves": (
        "This is what would change. Nothing has been moved yet.",
        "以下是将要发生的变化。尚未移动任何位点。",
    ),
    "preview_clone": (
        "{name} would get these offsets of {source}. Nothing has been changed yet.",
        "{name} 将得到 {source} 的以下位点。尚未修改。",
    ),
    "clone_new": (
        "No broker knows the group {name}: it will begin at these offsets once it is created.",
        "没有 Broker 拥有消费组 {name}：创建后将从这些位点开始。",
    ),
    "clone_online": (
        "{n} members of {name} are online: Apache's brokers do not move them, so stop them first there.",
        "{name} 有 {n} 个成员在线：Apache 的 Broker 不会移动它们，请先停止。",
    ),
    "clone_online.1": (
        "1 member of {name} is online: Apache's brokers do not move it, so stop it first there.",
        "{name} 有 1 个成员在线：Apache 的 Broker 不会移动它，请先停止。",
    ),
    "drain_open": ("Clients send to {name}.", "客户端可向 {name} 发送消息。"),
    "drain_unknown": (
        "{name} has no topic that clients may write, so it cannot be seen whether they may send.",
        "{name} 没有可写的主题，无法得知客户端能否发送。",
    ),
    "drain_waits": (
        "Clients are being sent to other brokers than {name}. Wait until no message has arrived for {s} s.",
        "客户端已被告知不再向 {name} 发送。请等待 {s} 秒无消息到达。",
    ),
    "drain_quiet": (
        "No messages arrive at {name} any more: no send will fail when it is stopped.",
        "{name} 已无消息到达：停止它不会使发送失败。",
    ),
    "drain_unread": (
        "No messages arrive at {name} any more; {n} messages there are not read yet.",
        "{name} 已无消息到达；仍有 {n} 条消息未读。",
    ),
    "drain_unread.1": (
        "No messages arrive at {name} any more; 1 message there is not read yet.",
        "{name} 已无消息到达；仍有 1 条消息未读。",
    ),
    "drain_done": (
        "No messages arrive at {name} any more, and no group has unread messages there: it can be stopped.",
        "{name} 已无消息到达，也没有未读消息：可以停止。",
    ),
    "readers_unknown": (
        "Which groups read it could not be found out in time. Load the page again.",
        "未能及时得知哪些消费组在读取。请重新加载。",
    ),
    "choose_topic": ("Choose a topic. Looking moves no offset.", "请选择主题。查看不会移动位点。"),
    "choose_trace": (
        "A trace needs the sender's id of a message, as its page shows it, and clients with trace=True.",
        "轨迹需要消息的发送方 ID（见消息页面），并且客户端要启用 trace=True。",
    ),
    "trace_nobody": (
        "No consumer has recorded that it got the message.",
        "没有消费者记录收到此消息。",
    ),
    "trace_open": ("{names}: got the message and did not consume it.", "{names}：收到消息但未消费成功。"),
    "trace_done": (
        "All {all} groups that got it consumed it; the last one was done {span} after the first step.",
        "收到消息的 {all} 个消费组都已消费；最后一个在第一步之后 {span} 完成。",
    ),
    "trace_done.1": (
        "The group that got it consumed it, and was done {span} after the first step.",
        "收到消息的消费组已消费，在第一步之后 {span} 完成。",
    ),
    "trace_clocks": (
        "Each time is that of the machine on which the step happened; their clocks may differ.",
        "各时间取自该步骤所在机器的时钟，彼此可能有偏差。",
    ),
    "found_key": ("{n} messages with the key {key}.", "{n} 条消息的键为 {key}。"),
    "found_key.1": ("1 message with the key {key}.", "1 条消息的键为 {key}。"),
    "found_read": ("{n} messages shown; {read} were read.", "显示 {n} 条消息；读取了 {read} 条。"),
    "as_command": ("At the command line: {command}", "命令行：{command}"),
    "ended_enough": ("There are more: a page shows {n}.", "还有更多：每页显示 {n} 条。"),
    "ended_time": (
        "The search ended after {s} s and {read} messages.",
        "搜索在 {s} 秒、{read} 条消息后结束。",
    ),
    "ended_read": (
        "The search ended after {read} messages.",
        "搜索在 {read} 条消息后结束。",
    ),
    "ended_wide": (
        "The search ended early, and has too many queues to be continued (more than {n}): choose one.",
        "搜索提前结束，队列过多（超过 {n} 个），无法继续：请选择队列。",
    ),
    "sure_topics": ("The topics and their messages will be gone for good.", "主题及其消息将永久删除。"),
    "sure_group": ("The group and its settings will be gone for good.", "消费组及其设置将永久删除。"),
    "only_consumers": ("Only consumers describe themselves.", "只有消费者会描述自身。"),
    "done_topic": ("Topic {name} is saved on {brokers}.", "主题 {name} 已保存到 {brokers}。"),
    "done_group": ("Group {name} is saved on {brokers}.", "消费组 {name} 已保存到 {brokers}。"),
    "done_deleted": ("Deleted: {names}.", "已删除：{names}。"),
    "done_sent": ("Sent to {queue} with the id {id}.", "已发送到 {queue}，ID 为 {id}。"),
    "done_moved": ("Group {name} was moved in {n} queues.", "消费组 {name} 已在 {n} 个队列中移动。"),
    "done_moved.1": ("Group {name} was moved in 1 queue.", "消费组 {name} 已在 1 个队列中移动。"),
    "done_cloned": (
        "Group {name} has the offsets of {source} on {brokers}.",
        "消费组 {name} 已在 {brokers} 上得到 {source} 的位点。",
    ),
    "done_drain": (
        "The write permission of {name} is taken, for {n} topics.",
        "已取消 {name} 的写权限（{n} 个主题）。",
    ),
    "done_drain_undo": (
        "The write permission of {name} is given back, for {n} topics.",
        "已恢复 {name} 的写权限（{n} 个主题）。",
    ),
    "done_redrive": (
        "The dead letters of {name} are being sent again by {brokers}.",
        "{brokers} 正在重新发送 {name} 的死信。",
    ),
    "done_stopped": (
        "Sending the dead letters of {name} again is stopped.",
        "已停止重新发送 {name} 的死信。",
    ),
    "done_setting": ("{key} is {value} at {address}.", "{address} 的 {key} 已设为 {value}。"),
    "done_user": ("User {name} is saved on {brokers}.", "用户 {name} 已保存到 {brokers}。"),
    "done_secret": (
        "User {name} is saved on {brokers}. The secret, shown once: {secret}",
        "用户 {name} 已保存到 {brokers}。密钥只显示一次：{secret}",
    ),
    "done_rule": ("The rule of {name} about {resource} is saved.", "{name} 对 {resource} 的规则已保存。"),
    "done_no_rule": (
        "The rule of {name} about {resource} is deleted.",
        "{name} 对 {resource} 的规则已删除。",
    ),
    "done_cancelled": ("The message {id} will not be delivered.", "消息 {id} 不会被投递。"),
    # -- dangerous changes
    "risk_permission": (
        "Topic {name} loses a permission: clients can no longer send to it, or no longer read it.",
        "主题 {name} 将失去一项权限：客户端将无法发送或无法读取。",
    ),
    "risk_off": (
        "Group {name} is switched off: its members get no more messages.",
        "消费组 {name} 将被关闭：成员收不到消息。",
    ),
    "risk_reset": (
        "The members of the group skip messages, or get messages again.",
        "消费组成员将跳过消息，或再次收到消息。",
    ),
    "risk_clone": (
        "The group that gets the offsets loses its own: its members skip messages, or get messages again.",
        "得到位点的消费组将失去原有位点：成员将跳过消息，或再次收到消息。",
    ),
    "risk_drain": (
        "Clients send to the other brokers; groups read what {name} has.",
        "客户端将向其他 Broker 发送；消费组继续读取 {name} 的消息。",
    ),
    "risk_drain_only": (
        "{name} is the only broker of its cluster: no client can send then.",
        "{name} 是集群中唯一的 Broker：客户端将无法发送。",
    ),
    "risk_redrive": (
        "All dead letters of {name} are sent again, not chosen ones.",
        "{name} 的全部死信（而非所选）将重新发送。",
    ),
    "risk_setting": (
        "With {key} a broker deletes messages, keeps fewer copies, refuses clients or leaves name servers.",
        "{key} 会使 Broker 删除消息、减少副本、拒绝客户端或离开名字服务器。",
    ),
    "risk_unknown": (
        "This broker does not say whether it can change {key} while it runs, nor what that does.",
        "该 Broker 未说明能否在运行时修改 {key}，也未说明其影响。",
    ),
    "risk_super": (
        "{name} becomes a super user, which may do everything.",
        "{name} 将成为超级用户，可执行一切操作。",
    ),
    "risk_normal": (
        "{name} is a super user no longer, and may do only what its rules allow.",
        "{name} 将不再是超级用户，只能执行规则允许的操作。",
    ),
    "risk_disabled": (
        "{name} is switched off: all requests with its key are refused.",
        "{name} 将被停用：使用其密钥的所有请求都会被拒绝。",
    ),
    "risk_secret": (
        "{name} gets another secret key: clients with the present one are refused.",
        "{name} 将更换 Secret Key：使用当前密钥的客户端会被拒绝。",
    ),
    "risk_deny": (
        "The rule denies {name} something about {resource}; it wins over a rule that allows it.",
        "该规则将拒绝 {name} 对 {resource} 的操作，优先于允许规则。",
    ),
    "risk_everything": (
        "The rule of {name} is about all topics, groups and clusters.",
        "{name} 的规则涉及所有主题、消费组和集群。",
    ),
    "risk_no_rule": (
        "What the rule allows is refused from now on; what it denies may be allowed.",
        "该规则允许的操作将被拒绝；其拒绝的操作可能被允许。",
    ),
    # -- settings of a broker
    "setting_live": (
        "The broker changes {key} at once, without a restart.",
        "Broker 立即修改 {key}，无需重启。",
    ),
    "setting_restart": (
        "{key} is {value}. It needs a restart: change it in the broker's configuration file.",
        "{key} 为 {value}。修改需要重启：请在 Broker 的配置文件中修改。",
    ),
    "no_such_setting": ("The broker has no setting {key}.", "该 Broker 没有设置 {key}。"),
    "live_unknown": (
        "This broker does not say which settings it can change while it runs.",
        "该 Broker 未说明哪些设置可在运行时修改。",
    ),
    # -- empty tables
    "no_lags": ("No group is behind.", "没有积压的消费组。"),
    "no_brokers": (
        "No broker is registered. Start one: orbitmq broker -n HOST:9876",
        "没有注册的 Broker。启动一个：orbitmq broker -n HOST:9876",
    ),
    "no_topics": (
        "No topics yet. Make one with “New topic”, or: orbitmq topic create NAME",
        "还没有主题。用“新建主题”创建，或：orbitmq topic create NAME",
    ),
    "no_queues": ("No broker has queues of this topic.", "没有 Broker 拥有此主题的队列。"),
    "no_readers": ("No group has read this topic yet.", "还没有消费组读取此主题。"),
    "no_groups": (
        "No groups yet. A consumer makes its group when it starts; or: orbitmq group create NAME",
        "还没有消费组。消费者启动时会创建；或：orbitmq group create NAME",
    ),
    "no_offsets": (
        "The group has committed no offset yet: it has not consumed anything.",
        "消费组尚未提交位点：还没有消费过。",
    ),
    "no_members": ("No member is online.", "没有在线成员。"),
    "no_offsets_there": (
        "The group has committed no offset there: there is nothing to give.",
        "消费组在那里没有提交位点：没有可复制的内容。",
    ),
    "no_readers_there": (
        "No group has a member or an unread message there.",
        "没有消费组在那里有成员或未读消息。",
    ),
    "no_moves": ("No queue is to be moved.", "没有要移动的队列。"),
    "no_letters": (
        "No dead letters. Messages come here when a consumer has rejected them, or failed too often.",
        "没有死信。被消费者拒绝或失败次数过多的消息会到这里。",
    ),
    "no_jobs": ("Nothing has been sent again yet.", "尚未重新发送。"),
    "no_messages": ("No message was found there.", "没有找到消息。"),
    "bodies_hidden": ("Your role does not show bodies.", "您的角色不显示消息体。"),
    "no_properties": ("None.", "无。"),
    "connections_more": (
        "The first {n} connections are shown; the page of the clients has all.",
        "仅显示前 {n} 个连接；全部见客户端页面。",
    ),
    "no_clients": ("No client is connected.", "没有已连接的客户端。"),
    "no_client_queues": ("The consumer has no queue.", "该消费者没有队列。"),
    "no_stacks": ("The consumer does not report its stacks.", "该消费者不提供线程栈。"),
    "no_timers": ("No message waits for its time.", "没有等待投递时间的消息。"),
    "no_minutes": ("The brokers do not say when messages are due.", "Broker 未说明消息的到期时间。"),
    "no_users": (
        "No users: authentication is off. See docs/security.md for turning it on.",
        "没有用户：认证未开启。开启方法见 docs/security.md。",
    ),
    "no_rules": ("No rules: only super users may do anything.", "没有规则：只有超级用户可以操作。"),
    "no_deciding_rules": ("No rule decides: see why above.", "没有规则决定：原因见上。"),
    "no_refusals": ("Nothing was refused.", "没有被拒绝的请求。"),
    "no_changes": ("Nothing was changed through this console yet.", "尚未通过此控制台修改。"),
}

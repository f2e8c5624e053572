// A program with Apache's remoting client for Go: it sends in each way, listens in each way, asks and answers,
// and ends transactions, as spring/Spring.java does; it says the same facts. Options are name=value: ns, prefix
// of its topics and groups, ak and sk.
package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const (
	limit       = 90 * time.Second
	sendTimeout = 20 * time.Second
	oneSecond   = 1 // the delay level
)

var (
	options = map[string]string{}
	states  = map[string]primitive.LocalTransactionState{
		"COMMIT":   primitive.CommitMessageState,
		"ROLLBACK": primitive.RollbackMessageState,
		"UNKNOWN":  primitive.UnkonwnState,
	}
	stateNames = map[primitive.LocalTransactionState]string{
		primitive.CommitMessageState:   "COMMIT_MESSAGE",
		primitive.RollbackMessageState: "ROLLBACK_MESSAGE",
		primitive.UnkonwnState:         "UNKNOW",
	}
	lock     sync.Mutex
	counters = map[string]chan struct{}{}
)

func main() {
	for _, option := range os.Args[1:] {
		name, value, _ := strings.Cut(option, "=")
		options[name] = value
	}
	rlog.SetLogLevel("error")
	producing := newProducer("producer")
	consumers := []rocketmq.PushConsumer{
		listen("plain", "tag", false, takePlain),
		listen("orderly", "*", true, takeOf("orderly")),
		listen("questions", "*", false, answering(newProducer("answers"))),
		listen("transacted", "*", false, takeOf("transacted")),
	}
	send(producing, topic("plain"))
	sendInOrder(producing, topic("orderly"))
	ask(producing, topic("questions"))
	transact(topic("transacted"))
	await("plain", 16)
	await("orderly", 12)
	await("transacted", 2)
	time.Sleep(2 * time.Second) // in which a message that is rolled back, or comes twice, would arrive
	for _, each := range consumers {
		check(each.Shutdown())
	}
	check(producing.Shutdown())
	say("done")
}

func topic(name string) string {
	return options["prefix"] + "_" + name
}

func credentials() primitive.Credentials {
	return primitive.Credentials{AccessKey: options["ak"], SecretKey: options["sk"]}
}

func producerOptions(name string) []producer.Option {
	return []producer.Option{
		producer.WithNsResolver(primitive.NewPassthroughResolver([]string{options["ns"]})),
		producer.WithGroupName(topic(name)),
		producer.WithInstanceName(name),
		producer.WithSendMsgTimeout(sendTimeout),
		producer.WithQueueSelector(producer.NewHashQueueSelector()),
		producer.WithCredentials(credentials()),
	}
}

func newProducer(name string) rocketmq.Producer {
	made, err := rocketmq.NewProducer(producerOptions(name)...)
	check(err)
	check(made.Start())
	return made
}

// listen starts a consumer of a topic, which hands each message to a function.
func listen(
	name, expression string, orderly bool, take func(context.Context, *primitive.MessageExt) consumer.ConsumeResult,
) rocketmq.PushConsumer {
	made, err := rocketmq.NewPushConsumer(
		consumer.WithNsResolver(primitive.NewPassthroughResolver([]string{options["ns"]})),
		consumer.WithGroupName(topic(name)),
		consumer.WithInstance("listener-"+name),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumerOrder(orderly),
		consumer.WithCredentials(credentials()),
	)
	check(err)
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: expression}
	check(made.Subscribe(topic(name), selector,
		func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			for _, message := range messages {
				if result := take(ctx, message); result != consumer.ConsumeSuccess {
					return result, nil
				}
			}
			return consumer.ConsumeSuccess, nil
		}))
	check(made.Start())
	return made
}

func takePlain(ctx context.Context, message *primitive.MessageExt) consumer.ConsumeResult {
	if string(message.Body) == "refused" && message.ReconsumeTimes == 0 {
		if concurrently, ok := primitive.GetConcurrentlyCtx(ctx); ok {
			concurrently.DelayLevelWhenNextConsume = oneSecond
		}
		return consumer.ConsumeRetryLater
	}
	received("plain", message)
	return consumer.ConsumeSuccess
}

func takeOf(name string) func(context.Context, *primitive.MessageExt) consumer.ConsumeResult {
	return func(_ context.Context, message *primitive.MessageExt) consumer.ConsumeResult {
		received(name, message)
		return consumer.ConsumeSuccess
	}
}

func answering(producing rocketmq.Producer) func(context.Context, *primitive.MessageExt) consumer.ConsumeResult {
	return func(ctx context.Context, message *primitive.MessageExt) consumer.ConsumeResult {
		answer, err := consumer.CreateReplyMessage(message, nil) // which forgets the body that it is given
		check(err)
		answer.Body = append([]byte("answer to "), message.Body...)
		_, err = producing.SendSync(ctx, answer)
		// The broker does not know the asking producer before its heartbeat, which this client sends late.
		for tries := 0; err != nil && tries < 35; tries++ {
			time.Sleep(time.Second)
			_, err = producing.SendSync(ctx, answer)
		}
		check(err)
		return consumer.ConsumeSuccess
	}
}

func message(topic, body string) *primitive.Message {
	made := primitive.NewMessage(topic, []byte(body)).WithTag("tag").WithKeys([]string{"of " + body})
	made.WithProperty("colour", "red")
	return made
}

func send(producing rocketmq.Producer, topic string) {
	ctx := context.Background()
	for i := 0; i < 4; i++ {
		sent("sync", producing, message(topic, fmt.Sprint("sync ", i)))
	}
	for i := 0; i < 4; i++ {
		check(producing.SendAsync(ctx, func(_ context.Context, result *primitive.SendResult, err error) {
			check(err)
			sayResult("async", result)
			counter("async") <- struct{}{}
		}, message(topic, fmt.Sprint("async ", i))))
	}
	await("async", 4)
	check(producing.SendOneWay(ctx, message(topic, "oneway")))
	var batch []*primitive.Message
	for i := 0; i < 4; i++ {
		batch = append(batch, message(topic, fmt.Sprint("batch ", i)))
	}
	sent("batch", producing, batch...)
	sent("other tag", producing, message(topic, "other tag").WithTag("other"))
	sent("refused", producing, message(topic, "refused"))
	sent("level", producing, message(topic, "level").WithDelayTimeLevel(oneSecond))
	sent("timer", producing, message(topic, "timer").WithDelayTimestamp(time.Now().Add(1500*time.Millisecond)))
}

func sendInOrder(producing rocketmq.Producer, topic string) {
	for i := 0; i < 12; i++ {
		key := fmt.Sprint("key ", i%3)
		sent("orderly", producing, message(topic, fmt.Sprint(key, " number ", i)).WithShardingKey(key))
	}
}

func ask(producing rocketmq.Producer, topic string) {
	for i := 0; i < 3; i++ {
		question := primitive.NewMessage(topic, []byte(fmt.Sprint("question ", i)))
		reply, err := producing.Request(context.Background(), 2*sendTimeout, question)
		check(err)
		say("reply", "body", string(reply.Body))
	}
	question := primitive.NewMessage(topic, []byte("question without waiting"))
	var once sync.Once // the client calls again when it forgets the question
	answered := func(_ context.Context, reply *primitive.Message, err error) {
		once.Do(func() {
			check(err)
			say("reply", "body", string(reply.Body))
			counter("answered") <- struct{}{}
		})
	}
	check(producing.RequestAsync(context.Background(), 2*sendTimeout, answered, question))
	await("answered", 1)
}

// decisions ends transactions as their bodies say; commits what it left open, when the broker asks.
type decisions struct{}

func (decisions) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	return states[string(message.Body)]
}

func (decisions) CheckLocalTransaction(message *primitive.MessageExt) primitive.LocalTransactionState {
	say("asked", "body", string(message.Body))
	if string(message.Body) == "ROLLBACK" {
		return primitive.RollbackMessageState
	}
	return primitive.CommitMessageState
}

func transact(topic string) {
	producing, err := rocketmq.NewTransactionProducer(decisions{}, producerOptions("transactions")...)
	check(err)
	check(producing.Start())
	for _, body := range []string{"COMMIT", "ROLLBACK", "UNKNOWN"} {
		result, err := producing.SendMessageInTransaction(context.Background(), message(topic, body))
		check(err)
		say("half", "status", status(result.SendResult), "state", stateNames[result.State])
	}
}

func sent(how string, producing rocketmq.Producer, messages ...*primitive.Message) {
	result, err := producing.SendSync(context.Background(), messages...)
	check(err)
	sayResult(how, result)
}

func sayResult(how string, result *primitive.SendResult) {
	say("sent", "how", how, "status", status(result), "id", result.MsgID, "queue", result.MessageQueue.QueueId)
}

func status(result *primitive.SendResult) string {
	if result.Status == primitive.SendOK {
		return "SEND_OK"
	}
	return fmt.Sprint(result.Status)
}

func received(name string, message *primitive.MessageExt) {
	say("received", "who", name, "body", string(message.Body), "tags", message.GetTags(), "keys", message.GetKeys(),
		"colour", message.GetProperty("colour"), "queue", message.Queue.QueueId, "offset", message.QueueOffset,
		"reconsumed", message.ReconsumeTimes, "waited", message.StoreTimestamp-message.BornTimestamp)
	counter(name) <- struct{}{}
}

func counter(what string) chan struct{} {
	lock.Lock()
	defer lock.Unlock()
	if counters[what] == nil {
		counters[what] = make(chan struct{}, 1000)
	}
	return counters[what]
}

// await waits until it has happened that many times.
func await(what string, times int) {
	end := time.After(limit)
	for happened := 0; happened < times; happened++ {
		select {
		case <-counter(what):
		case <-end:
			say("timeout", "of", what, "happened", happened, "wanted", times)
			os.Exit(1)
		}
	}
}

func check(err error) {
	if err != nil {
		say("failed", "error", err)
		os.Exit(1)
	}
}

func say(fact string, namesAndValues ...any) {
	line := "fact=" + fact
	for i := 0; i < len(namesAndValues); i += 2 {
		line += fmt.Sprintf("&%v=%s", namesAndValues[i], url.QueryEscape(fmt.Sprint(namesAndValues[i+1])))
	}
	lock.Lock()
	defer lock.Unlock()
	fmt.Println(line)
}

// The Go driver. Command line and output: ../../drivers.py.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

type order struct {
	N           string            `json:"n"`
	Mode        string            `json:"mode"`
	Tags        string            `json:"tags"`
	Keys        []string          `json:"keys"`
	Properties  map[string]string `json:"properties"`
	Body        []byte            `json:"body"`
	LastOfBatch bool              `json:"last_of_batch"`
	DelayLevel  int               `json:"delay_level"`
}

type event map[string]any

var (
	out     = json.NewEncoder(os.Stdout)
	outLock sync.Mutex
	keys    primitive.Credentials // empty: requests are not signed
)

func main() {
	seconds, err := strconv.Atoi(os.Args[5])
	check(err)
	time.AfterFunc(time.Duration(seconds)*time.Second, func() { os.Exit(3) })
	if len(os.Args) > 6 {
		keys = primitive.Credentials{AccessKey: os.Args[6], SecretKey: os.Args[7]}
	}
	run, known := map[string]func(string, string, string){
		"produce": produce, "request": request, "reply": reply, "transact": transact}[os.Args[1]]
	if !known {
		run = func(namesrv, topic, group string) { consume(namesrv, topic, group, options[os.Args[1]]...) }
	}
	run(os.Args[2], os.Args[3], os.Args[4])
	emit(event{"event": "left"})
}

func produce(namesrv, topic, group string) {
	p := newProducer(namesrv, group)
	check(p.Start())
	emit(event{"event": "started"})
	var inFlight sync.WaitGroup
	var batch []order
	lines := bufio.NewReader(os.Stdin)
	for line, err := lines.ReadBytes('\n'); err == nil; line, err = lines.ReadBytes('\n') {
		var o order
		check(json.Unmarshal(line, &o))
		switch o.Mode {
		case "sync":
			result, err := p.SendSync(context.Background(), message(topic, o))
			sent(o, result, err)
		case "async":
			inFlight.Add(1)
			check(p.SendAsync(context.Background(), func(_ context.Context, result *primitive.SendResult, err error) {
				sent(o, result, err)
				inFlight.Done()
			}, message(topic, o)))
		case "oneway":
			check(p.SendOneWay(context.Background(), message(topic, o)))
		case "batch":
			batch = append(batch, o)
		}
		if o.LastOfBatch {
			sendBatch(p, topic, batch)
			batch = nil
		}
	}
	inFlight.Wait()
	check(p.Shutdown())
}

func newProducer(namesrv, group string) rocketmq.Producer {
	p, err := rocketmq.NewProducer(producer.WithNameServer([]string{namesrv}), producer.WithGroupName(group),
		producer.WithCredentials(keys))
	check(err)
	return p
}

func sendBatch(p rocketmq.Producer, topic string, batch []order) {
	var messages []*primitive.Message
	for _, o := range batch {
		messages = append(messages, message(topic, o))
	}
	result, err := p.SendSync(context.Background(), messages...)
	check(err)
	ids := strings.Split(result.MsgID, ",")
	for i, o := range batch {
		one := *result
		one.QueueOffset += int64(i)
		one.MsgID = ""
		if len(ids) == len(batch) {
			one.MsgID = ids[i]
		}
		sent(o, &one, nil)
	}
}

var options = map[string][]consumer.Option{
	"broadcast": {consumer.WithConsumerModel(consumer.BroadCasting)},
	"orderly": {consumer.WithConsumerOrder(true), consumer.WithMaxReconsumeTimes(1),
		consumer.WithSuspendCurrentQueueTimeMillis(50 * time.Millisecond)},
	"retry": {consumer.WithMaxReconsumeTimes(1)},
}

func consume(namesrv, topic, group string, options ...consumer.Option) {
	c := newConsumer(namesrv, group, options...)
	selector := consumer.MessageSelector{}
	if name, expression, selects := strings.Cut(topic, " where "); selects {
		topic, selector = name, consumer.MessageSelector{Type: consumer.SQL92, Expression: expression}
	}
	check(c.Subscribe(topic, selector, received))
	check(c.Start())
	emit(event{"event": "started"})
	_, err := io.Copy(io.Discard, os.Stdin)
	check(err)
	check(c.Shutdown())
}

func newConsumer(namesrv, group string, options ...consumer.Option) rocketmq.PushConsumer {
	c, err := rocketmq.NewPushConsumer(append(options, consumer.WithNameServer([]string{namesrv}),
		consumer.WithGroupName(group), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithCredentials(keys))...)
	check(err)
	return c
}

// A broker cannot route a reply before the producer's first heartbeat, which this client sends some time after its start.
// So failed requests are repeated.
const tries = 5

func request(namesrv, topic, group string) {
	p := newProducer(namesrv, group)
	check(p.Start())
	emit(event{"event": "started"})
	lines := bufio.NewReader(os.Stdin)
	for line, err := lines.ReadBytes('\n'); err == nil; line, err = lines.ReadBytes('\n') {
		var o order
		check(json.Unmarshal(line, &o))
		var reply *primitive.Message
		failure := io.EOF
		for try := 0; failure != nil && try < tries; try++ {
			reply, failure = p.Request(context.Background(), 2*time.Second, message(topic, o))
		}
		if failure != nil {
			emit(event{"event": "failed", "n": o.N, "error": failure.Error()})
			continue
		}
		emit(event{"event": "received", "topic": reply.Topic, "queue": 0, "offset": 0, "id": "", "tags": reply.GetTags(),
			"keys": reply.GetKeys(), "properties": reply.GetProperties(), "body": reply.Body})
	}
	check(p.Shutdown())
}

func reply(namesrv, topic, group string) {
	p := newProducer(namesrv, group+"-replies")
	check(p.Start())
	c := newConsumer(namesrv, group)
	handle := func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, m := range messages {
			r, err := consumer.CreateReplyMessage(m, nil) // the function ignores its body argument
			check(err)
			r.Body = append([]byte("re: "), m.Body...)
			r.WithProperty("n", m.GetProperty("n"))
			result, err := p.SendSync(ctx, r)
			sent(order{N: m.GetProperty("n")}, result, err)
		}
		return received(ctx, messages...)
	}
	check(c.Subscribe(topic, consumer.MessageSelector{}, handle))
	check(c.Start())
	emit(event{"event": "started"})
	_, err := io.Copy(io.Discard, os.Stdin)
	check(err)
	check(c.Shutdown())
	check(p.Shutdown())
}

type listener struct{}

var states = map[string]primitive.LocalTransactionState{
	"commit": primitive.CommitMessageState, "rollback": primitive.RollbackMessageState, "unknown": primitive.UnknowState}

func (listener) ExecuteLocalTransaction(m *primitive.Message) primitive.LocalTransactionState {
	return states[m.GetProperty("local")]
}

func (listener) CheckLocalTransaction(m *primitive.MessageExt) primitive.LocalTransactionState {
	return states[m.GetProperty("check")]
}

func transact(namesrv, topic, group string) {
	p, err := rocketmq.NewTransactionProducer(
		listener{}, producer.WithNameServer([]string{namesrv}), producer.WithGroupName(group),
		producer.WithCredentials(keys))
	check(err)
	check(p.Start())
	emit(event{"event": "started"})
	lines := bufio.NewReader(os.Stdin)
	for line, err := lines.ReadBytes('\n'); err == nil; line, err = lines.ReadBytes('\n') {
		var o order
		check(json.Unmarshal(line, &o))
		result, err := p.SendMessageInTransaction(context.Background(), message(topic, o))
		if err != nil {
			sent(o, nil, err)
			continue
		}
		sent(o, result.SendResult, nil)
	}
	check(p.Shutdown())
}

func received(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
	for _, m := range messages {
		emit(event{"event": "received", "topic": m.Topic, "queue": m.Queue.QueueId, "offset": m.QueueOffset,
			"id": m.MsgId, "tags": m.GetTags(), "keys": m.GetKeys(), "properties": m.GetProperties(), "body": m.Body})
		if fails, err := strconv.Atoi(m.GetProperty("fails")); err == nil && int(m.ReconsumeTimes) < fails {
			if os.Args[1] == "orderly" {
				return consumer.SuspendCurrentQueueAMoment, nil
			}
			return consumer.ConsumeRetryLater, nil
		}
	}
	return consumer.ConsumeSuccess, nil
}

func message(topic string, o order) *primitive.Message {
	m := primitive.NewMessage(topic, o.Body).WithTag(o.Tags).WithKeys(o.Keys)
	for name, value := range o.Properties {
		m.WithProperty(name, value)
	}
	if o.DelayLevel > 0 {
		m.WithDelayTimeLevel(o.DelayLevel)
	}
	return m
}

func sent(o order, result *primitive.SendResult, err error) {
	if err != nil {
		emit(event{"event": "failed", "n": o.N, "error": err.Error()})
		return
	}
	status := map[bool]string{true: "SEND_OK", false: strconv.Itoa(int(result.Status))}[result.Status == primitive.SendOK]
	emit(event{"event": "sent", "n": o.N, "status": status, "id": result.MsgID,
		"queue": result.MessageQueue.QueueId, "offset": result.QueueOffset})
}

func emit(e event) {
	outLock.Lock()
	defer outLock.Unlock()
	check(out.Encode(e))
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

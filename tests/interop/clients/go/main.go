// The Go driver. Its command line and its lines: ../../drivers.py.
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
}

type event map[string]any

var (
	out     = json.NewEncoder(os.Stdout)
	outLock sync.Mutex
)

func main() {
	seconds, err := strconv.Atoi(os.Args[5])
	check(err)
	time.AfterFunc(time.Duration(seconds)*time.Second, func() { os.Exit(3) })
	if os.Args[1] == "produce" {
		produce(os.Args[2], os.Args[3], os.Args[4])
	} else {
		consume(os.Args[2], os.Args[3], os.Args[4])
	}
	emit(event{"event": "left"})
}

func produce(namesrv, topic, group string) {
	p, err := rocketmq.NewProducer(producer.WithNameServer([]string{namesrv}), producer.WithGroupName(group))
	check(err)
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

func consume(namesrv, topic, group string) {
	c, err := rocketmq.NewPushConsumer(consumer.WithNameServer([]string{namesrv}), consumer.WithGroupName(group),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	check(err)
	selector := consumer.MessageSelector{}
	if name, expression, selects := strings.Cut(topic, " where "); selects {
		topic, selector = name, consumer.MessageSelector{Type: consumer.SQL92, Expression: expression}
	}
	check(c.Subscribe(topic, selector, received))
	check(c.Start())
	emit(event{"event": "started"})
	_, err = io.Copy(io.Discard, os.Stdin)
	check(err)
	check(c.Shutdown())
}

func received(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
	for _, m := range messages {
		emit(event{"event": "received", "topic": m.Topic, "queue": m.Queue.QueueId, "offset": m.QueueOffset,
			"id": m.MsgId, "tags": m.GetTags(), "keys": m.GetKeys(), "properties": m.GetProperties(), "body": m.Body})
	}
	return consumer.ConsumeSuccess, nil
}

func message(topic string, o order) *primitive.Message {
	m := primitive.NewMessage(topic, o.Body).WithTag(o.Tags).WithKeys(o.Keys)
	for name, value := range o.Properties {
		m.WithProperty(name, value)
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

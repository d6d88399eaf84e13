// Command pubsub is Pub/Sub for the tests: Google's own in-memory server, which
// the emulator's clients speak to, and beside it a plain HTTP server by which a
// test publishes, looks at what was acknowledged, and lets things go wrong.
//
// It prints one line of JSON with both addresses, and runs until it is killed.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
)

// Where a test publishes to: what is published goes to every subscription.
const topic = "projects/p/topics/maintenance"

func main() {
	broker, err := newBroker()
	if err != nil {
		log.Fatal(err)
	}
	control, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	addresses := map[string]string{"pubsub": broker.address, "control": control.Addr().String()}
	if err := json.NewEncoder(os.Stdout).Encode(addresses); err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.Serve(control, routes(broker)))
}

func routes(broker *broker) http.Handler {
	mux := http.NewServeMux()
	// {"name": "projects/p/subscriptions/s", "exactlyOnce": false}
	handle(mux, "POST /subscriptions", func(wanted struct {
		Name        string
		ExactlyOnce bool
	}) (any, error) {
		return nil, broker.subscribe(&pubsubpb.Subscription{
			Name:                      wanted.Name,
			Topic:                     topic,
			EnableExactlyOnceDelivery: wanted.ExactlyOnce,
		})
	})
	// The messages' data, in base64. Answers with their ids.
	handle(mux, "POST /messages", func(data [][]byte) (any, error) {
		ids := make([]string, 0, len(data))
		for _, each := range data {
			ids = append(ids, broker.fake.Publish(topic, each, nil))
		}
		return ids, nil
	})
	// Everything published so far, with how often it was delivered and acknowledged.
	handle(mux, "GET /messages", func(struct{}) (any, error) { return broker.messages(), nil })
	// The server's clock goes on by so many seconds: leases run out, and what was
	// not acknowledged is delivered again.
	handle(mux, "POST /advance", func(seconds int) (any, error) {
		broker.advance(time.Duration(seconds) * time.Second)
		return nil, nil
	})
	// {"code": 7, "message": "…"}: every call is answered with it, and the streams
	// that are open end with it; code 0 ends that.
	handle(mux, "POST /fault", func(fault fault) (any, error) {
		broker.fail(fault)
		return nil, nil
	})
	// The connections are cut and the port is closed, but nothing is forgotten.
	handle(mux, "POST /down", func(struct{}) (any, error) {
		broker.down()
		return nil, nil
	})
	handle(mux, "POST /up", func(struct{}) (any, error) { return nil, broker.up() })
	// How many streams were opened, and how many of them are open.
	handle(mux, "GET /streams", func(struct{}) (any, error) {
		opened, open := broker.count()
		return map[string]int{"opened": opened, "open": open}, nil
	})
	return mux
}

// handle serves a route whose body, if it has one, and answer are JSON.
func handle[Wanted any](mux *http.ServeMux, route string, serve func(Wanted) (any, error)) {
	mux.HandleFunc(route, func(writer http.ResponseWriter, request *http.Request) {
		var wanted Wanted
		if request.ContentLength != 0 {
			if err := json.NewDecoder(request.Body).Decode(&wanted); err != nil {
				http.Error(writer, fmt.Sprintf("body: %v", err), http.StatusBadRequest)
				return
			}
		}
		answer, err := serve(wanted)
		if err != nil {
			http.Error(writer, err.Error(), http.StatusInternalServerError)
			return
		}
		writer.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(writer).Encode(answer); err != nil {
			log.Print(err)
		}
	})
}

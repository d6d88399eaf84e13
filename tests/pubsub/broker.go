package main

import (
	"context"
	"net"
	"sync"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// broker is the in-memory server behind a gRPC server of our own. That one can
// go down and come up again while the messages stay, as Pub/Sub's servers do,
// and its interceptors can fail streams, which the fake's own reactors can't.
type broker struct {
	fake    *pstest.Server
	address string

	mu      sync.Mutex
	server  *grpc.Server
	fault   fault
	ahead   time.Duration
	opened  int
	streams map[*stream]struct{}
}

// fault is a gRPC status.
type fault struct {
	Code    codes.Code
	Message string
}

// message is what became of one, as far as the server knows.
type message struct {
	ID         string `json:"id"`
	Deliveries int    `json:"deliveries"`
	Acks       int    `json:"acks"`
	Nacks      int    `json:"nacks"`
}

func newBroker() (*broker, error) {
	broker := &broker{
		fake:    pstest.NewServer(),
		address: "127.0.0.1:0",
		streams: map[*stream]struct{}{},
	}
	broker.fake.SetTimeNowFunc(func() time.Time {
		broker.mu.Lock()
		defer broker.mu.Unlock()
		return time.Now().Add(broker.ahead)
	})
	_, err := broker.fake.GServer.CreateTopic(context.Background(), &pubsubpb.Topic{Name: topic})
	if err != nil {
		return nil, err
	}
	return broker, broker.up()
}

func (b *broker) subscribe(subscription *pubsubpb.Subscription) error {
	_, err := b.fake.GServer.CreateSubscription(context.Background(), subscription)
	return err
}

func (b *broker) messages() []message {
	all := []message{}
	for _, known := range b.fake.Messages() {
		nacks := 0
		for _, modack := range known.Modacks {
			if modack.AckDeadline == 0 {
				nacks++
			}
		}
		all = append(all, message{known.ID, known.Deliveries, known.Acks, nacks})
	}
	return all
}

// The fake asks for the time with its own lock held, so that ours is never held
// while it is called.
func (b *broker) advance(by time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ahead += by
}

func (b *broker) count() (opened, open int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.opened, len(b.streams)
}

func (b *broker) fail(with fault) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fault = with
	if with.Code != codes.OK {
		for stream := range b.streams {
			stream.end()
		}
	}
}

// up listens, at the first address again if there was one.
func (b *broker) up() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	listener, err := net.Listen("tcp", b.address)
	if err != nil {
		return err
	}
	b.address = listener.Addr().String()
	b.server = grpc.NewServer(grpc.UnaryInterceptor(b.unary), grpc.StreamInterceptor(b.stream))
	pubsubpb.RegisterPublisherServer(b.server, &b.fake.GServer)
	pubsubpb.RegisterSubscriberServer(b.server, &b.fake.GServer)
	// It ends with an error only when the listener does, in down.
	go func(server *grpc.Server) { _ = server.Serve(listener) }(b.server)
	return nil
}

func (b *broker) down() {
	b.mu.Lock()
	server := b.server
	b.mu.Unlock()
	server.Stop()
}

func (b *broker) failure() error {
	return status.Error(b.fault.Code, b.fault.Message)
}

func (b *broker) unary(
	ctx context.Context, request any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler,
) (any, error) {
	b.mu.Lock()
	failure := b.failure()
	b.mu.Unlock()
	if failure != nil {
		return nil, failure
	}
	return next(ctx, request)
}

// stream is a server stream that ends when a fault begins.
type stream struct {
	grpc.ServerStream
	context context.Context
	end     context.CancelFunc
}

func (s *stream) Context() context.Context { return s.context }

func (b *broker) stream(
	service any, inner grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler,
) error {
	watched := &stream{ServerStream: inner}
	watched.context, watched.end = context.WithCancel(inner.Context())
	defer watched.end()
	b.mu.Lock()
	b.opened++
	failure := b.failure()
	if failure == nil {
		b.streams[watched] = struct{}{}
	}
	b.mu.Unlock()
	if failure != nil {
		return failure
	}
	ended := make(chan error, 1)
	go func() { ended <- next(service, watched) }()
	var err error
	select {
	case err = <-ended:
	case <-watched.context.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.streams, watched)
	if failure := b.failure(); failure != nil {
		return failure
	}
	return err
}

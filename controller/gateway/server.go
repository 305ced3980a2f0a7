package gateway

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Limits of the one port that everything is served on. Streams have idle limits only, so there is no read or write
// timeout; a connection between requests may rest longer than a client keeps it pooled.
const (
	readHeaderTimeout = 30 * time.Second
	restTimeout       = 620 * time.Second
)

// NewServer returns a server for the port that carries the data plane: HTTP/1.1, h2c, and HTTP/2 under TLS.
func NewServer(h http.Handler, log *slog.Logger) *http.Server {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	speaks := &http.Protocols{}
	speaks.SetHTTP1(true)
	speaks.SetHTTP2(true)
	speaks.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           h,
		Protocols:         speaks,
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       restTimeout,
		MaxHeaderBytes:    headerMaxBytes,
		ConnContext:       ConnContext,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: 1000},
	}
}

type connKey struct{}

// ConnContext remembers the client's connection, so that the gateway can reset it when a sandbox ends. It belongs in
// http.Server.ConnContext.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// resetClient ends the client's HTTP/1 connection with a TCP reset, which the SDKs tell from an orderly end. Streams
// of HTTP/2 share their connection with other sandboxes and are reset one by one, by aborting the handler.
func resetClient(r *http.Request) {
	conn, ok := r.Context().Value(connKey{}).(net.Conn)
	if !ok || r.ProtoMajor != 1 {
		return
	}
	if inner, ok := conn.(interface{ NetConn() net.Conn }); ok { // tls.Conn
		conn = inner.NetConn()
	}
	if tcp, ok := conn.(interface{ SetLinger(int) error }); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

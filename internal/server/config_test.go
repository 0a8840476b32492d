package server

import (
	"cmp"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/internal/testutil/certtest"
)

// New reports all invalid fields at once, each by its name.
func TestNewReportsInvalidFields(t *testing.T) {
	known, _ := tokens(t, "operate")
	pair := certtest.New(t)
	for _, test := range []struct {
		name   string
		config Config
		want   []string // part of each error, in order
	}{
		{"only a directory", Config{Data: "x"}, nil},
		{"only Redis", Config{RedisURL: "redis://x", BaseURL: "https://hub.example.org/rs/"}, nil},
		{"nothing", Config{}, []string{"Config.Data: got neither Data nor Config.RedisURL"}},
		{"all at once", Config{Listen: "here", OpsListen: "there", BaseURL: "hub.example.org", Sets: []string{"a", "B"}, ChangeListSize: 25_001, Heartbeat: -1, CallbackRequests: -1, Data: "x"},
			[]string{"Config.Listen: want HOST:PORT", "Config.OpsListen: want HOST:PORT", "Config.BaseURL: want a URL", "Config.Sets: ", "Config.ChangeListSize: got 25001", "Config.Heartbeat: got -1ns", "Config.CallbackRequests: got -1"}},
		{"public address", Config{Listen: ":8080", OpsListen: ":8081", Data: "x"}, []string{"Config.Listen: got :8080, want a loopback address", "Config.OpsListen: got :8081, want a loopback address"}},
		{"public address without URL", Config{Listen: ":8080", Data: "x", Insecure: true}, []string{"Config.BaseURL: got none"}},
		{"with tokens", Config{Listen: ":8080", OpsListen: ":8081", Data: "x", Callers: known, BaseURL: "https://hub.example.org"}, nil},
		{"insecure by request", Config{Listen: ":8080", Data: "x", Insecure: true, BaseURL: "https://hub.example.org"}, nil},
		{"Redis without URL", Config{RedisURL: "redis://x"}, []string{"Config.BaseURL: got none"}},
		{"NATS without Redis", Config{Data: "x", NATSURL: "nats://x"}, []string{"Config.NATSURL"}},
		{"certificate without key", Config{Data: "x", TLSCertFile: pair.Cert}, []string{"Config.TLSCertFile: got only one of"}},
		{"invalid key", Config{Data: "x", TLSCertFile: pair.Cert, TLSKeyFile: pair.Cert}, []string{"Config.TLSCertFile: read certificate"}},
		{"TLS with an http URL", Config{Data: "x", TLSCertFile: pair.Cert, TLSKeyFile: pair.Key, BaseURL: "http://hub.example.org"}, []string{"Config.BaseURL: got http://hub.example.org, want https"}},
		{"TLS", Config{Data: "x", TLSCertFile: pair.Cert, TLSKeyFile: pair.Key, BaseURL: "https://hub.example.org"}, nil},
		{"password in the URL", Config{Data: "x", BaseURL: "https://me:secret@hub.example.org"}, []string{"Config.BaseURL: want a URL"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := New(test.config)
			var got []string
			if err != nil {
				got = strings.Split(err.Error(), "\n")
			}
			if len(got) != len(test.want) {
				t.Fatalf("got %d errors, want %d: %v", len(got), len(test.want), err)
			}
			for i, want := range test.want {
				if !strings.Contains(got[i], want) || strings.Contains(got[i], "secret") {
					t.Errorf("error %d = %q, want a part %q and no password", i+1, got[i], want)
				}
			}
		})
	}
}

// Run fails with the field that prevents the start.
func TestRunFails(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	address := taken.Addr().String()
	other := start(t, Config{})
	for _, test := range []struct {
		name   string
		config Config
		want   string
	}{
		{"address in use", Config{Listen: address, Data: t.TempDir()}, "Config.Listen: "},
		{"operations address in use", Config{OpsListen: address, Data: t.TempDir()}, "Config.OpsListen: "},
		{"directory in use", Config{Data: other.data}, "in use"},
		{"Redis unreachable", Config{RedisURL: "redis://127.0.0.1:1", BaseURL: "http://127.0.0.1:1", StartTimeout: time.Millisecond}, "Config.RedisURL: waited for 1ms (Config.StartTimeout)"},
		{"invalid Redis URL", Config{RedisURL: "http://127.0.0.1:1", BaseURL: "http://127.0.0.1:1"}, "Config.RedisURL: "},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.config.Listen = cmp.Or(test.config.Listen, "127.0.0.1:0")
			s, err := New(test.config)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Run() = %v, want a part %q", err, test.want)
			}
		})
	}
}

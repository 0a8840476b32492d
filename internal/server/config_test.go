package server

import (
	"cmp"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/rshub/rshub/internal/testutil/certtest"
)

// New refuses what would break a hub, all at once, and calls the fields by their
// names.
func TestNewRefuses(t *testing.T) {
	known, _ := tokens(t, "operate")
	pair := certtest.New(t)
	for _, test := range []struct {
		name   string
		config Config
		want   []string // a part of each problem, in order
	}{
		{"a directory is enough", Config{Data: "x"}, nil},
		{"a Redis is enough", Config{RedisURL: "redis://x", BaseURL: "https://hub.example.org/rs/"}, nil},
		{"nothing", Config{}, []string{"Config.Data is empty"}},
		{"all at once", Config{Listen: "here", OpsListen: "there", BaseURL: "hub.example.org", Sets: []string{"a", "B"}, ChangeListSize: 25_001, Heartbeat: -1, CallbackRequests: -1, Data: "x"},
			[]string{"Config.Listen is no HOST:PORT", "Config.OpsListen is no HOST:PORT", "Config.BaseURL is no URL", "Config.Sets has", "Config.ChangeListSize is 25001", "Config.Heartbeat is -1ns", "Config.CallbackRequests is -1"}},
		{"beyond loopback", Config{Listen: ":8080", OpsListen: ":8081", Data: "x"}, []string{"Config.Listen is :8080, beyond loopback", "Config.OpsListen is :8081, beyond loopback"}},
		{"without a name", Config{Listen: ":8080", Data: "x", Insecure: true}, []string{"Config.BaseURL is empty"}},
		{"with tokens", Config{Listen: ":8080", OpsListen: ":8081", Data: "x", Callers: known, BaseURL: "https://hub.example.org"}, nil},
		{"told so", Config{Listen: ":8080", Data: "x", Insecure: true, BaseURL: "https://hub.example.org"}, nil},
		{"one of several", Config{RedisURL: "redis://x"}, []string{"Config.BaseURL is empty"}},
		{"NATS alone", Config{Data: "x", NATSURL: "nats://x"}, []string{"Config.NATSURL"}},
		{"a certificate alone", Config{Data: "x", TLSCertFile: pair.Cert}, []string{"Config.TLSCertFile and Config.TLSKeyFile are a pair"}},
		{"a key that is none", Config{Data: "x", TLSCertFile: pair.Cert, TLSKeyFile: pair.Cert}, []string{"Config.TLSCertFile: read the certificate in"}},
		{"TLS by http", Config{Data: "x", TLSCertFile: pair.Cert, TLSKeyFile: pair.Key, BaseURL: "http://hub.example.org"}, []string{"Config.BaseURL is http://hub.example.org, and the hub speaks TLS"}},
		{"TLS", Config{Data: "x", TLSCertFile: pair.Cert, TLSKeyFile: pair.Key, BaseURL: "https://hub.example.org"}, nil},
		{"a password", Config{Data: "x", BaseURL: "https://me:secret@hub.example.org"}, []string{"Config.BaseURL is no URL"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := New(test.config)
			var got []string
			if err != nil {
				got = strings.Split(err.Error(), "\n")
			}
			if len(got) != len(test.want) {
				t.Fatalf("there are %d problems, want %d: %v", len(got), len(test.want), err)
			}
			for i, want := range test.want {
				if !strings.Contains(got[i], want) || strings.Contains(got[i], "secret") {
					t.Errorf("problem %d is %q, want %q", i+1, got[i], want)
				}
			}
		})
	}
}

// What a hub cannot begin with ends Run, and says which field it is.
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
		{"the address is taken", Config{Listen: address, Data: t.TempDir()}, "Config.Listen: "},
		{"the other address is taken", Config{OpsListen: address, Data: t.TempDir()}, "Config.OpsListen: "},
		{"the directory is taken", Config{Data: other.data}, "in use"},
		{"nobody is Redis", Config{RedisURL: "redis://127.0.0.1:1", BaseURL: "http://127.0.0.1:1", StartTimeout: time.Millisecond}, "Config.RedisURL: waited for 1ms (Config.StartTimeout)"},
		{"no Redis at all", Config{RedisURL: "http://127.0.0.1:1", BaseURL: "http://127.0.0.1:1"}, "Config.RedisURL: "},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.config.Listen = cmp.Or(test.config.Listen, "127.0.0.1:0")
			s, err := New(test.config)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("it ended with %v", err)
			}
		})
	}
}

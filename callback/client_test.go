package callback

import (
	"crypto/tls"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"
)

// Whatever it is that a TLS handshake fails at, a subscriber is told that it did.
func TestExplainTLS(t *testing.T) {
	for name, test := range map[string]struct {
		config *tls.Config
		known  bool // its certificate is trusted: that is not what fails
	}{
		"an unknown authority":   {&tls.Config{}, false},
		"TLS 1.1":                {&tls.Config{MaxVersion: tls.VersionTLS11}, true},
		"asks for a certificate": {&tls.Config{ClientAuth: tls.RequireAnyClientCert, MaxVersion: tls.VersionTLS12}, true},
		"wants nobody":           {&tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return nil, io.EOF }}, true},
		"shares no cipher suite": {&tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_RSA_WITH_RC4_128_SHA}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			server.TLS, server.Config.ErrorLog = test.config, log.New(io.Discard, "", 0)
			server.StartTLS()
			defer server.Close()
			o := Options{}
			if test.known {
				o.CAs = server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
			}
			o.defaults()
			transport := newTransport(&addresses{allow: loopback}, &o)
			defer transport.CloseIdleConnections()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := transport.RoundTrip(r)
			if err == nil {
				resp.Body.Close()
				t.Fatalf("it is answered %s", resp.Status)
			}
			if no := explain(err); no.text != "the TLS handshake failed" || no.outcome != outcomeTLS {
				t.Errorf("%v is explained as %+v", err, no)
			}
		})
	}
}

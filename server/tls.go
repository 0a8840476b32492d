package server

import (
	"context"
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/certificate"
)

// Certificates are what the hub speaks TLS with, by what /readyz and metrics call them. A
// listener without one speaks without TLS.
type certificates map[string]*certificate.Files

const (
	publicCertificate = "certificate"     // of Config.Listen
	opsCertificate    = "ops_certificate" // of Config.OpsListen
)

// openCertificates opens the files that c names. c has been checked.
func (s *Server) openCertificates() error {
	c := &s.config
	s.certificates = certificates{}
	for _, f := range []struct{ name, field, cert, key string }{
		{publicCertificate, "Config.TLSCertFile", c.TLSCertFile, c.TLSKeyFile}, {opsCertificate, "Config.OpsTLSCertFile", c.OpsTLSCertFile, c.OpsTLSKeyFile},
	} {
		if f.cert == "" {
			continue
		}
		opened, err := certificate.Open(f.cert, f.key, s.log)
		if err != nil {
			return fmt.Errorf("%s: %w", f.field, err)
		}
		s.certificates[f.name] = opened
		promauto.With(s.metrics).NewGaugeFunc(prometheus.GaugeOpts{
			Name: "rshub_certificate_expires_timestamp_seconds", Help: "When the TLS certificate in force ends, that of RSHUB_LISTEN (certificate) and that of RSHUB_OPS_LISTEN (ops_certificate); only where the hub speaks TLS.",
			ConstLabels: prometheus.Labels{"certificate": f.name},
		}, func() float64 { return float64(opened.Expires().Unix()) })
	}
	return nil
}

// run reads the certificates anew when they change, until ctx is done.
func (c certificates) run(ctx context.Context) error {
	done := make(chan struct{})
	for _, files := range c {
		go func() { files.Watch(ctx); done <- struct{}{} }()
	}
	for range c {
		<-done
	}
	return nil
}

// secure makes srv speak TLS with a certificate, if there is one, and HTTP/2 with whom
// asks for it (ALPN).
func (c certificates) secure(srv *http.Server, name string) {
	files := c[name]
	if files == nil {
		return
	}
	srv.TLSConfig = files.Config()
	if srv.Protocols == nil {
		srv.Protocols = new(http.Protocols)
		srv.Protocols.SetHTTP1(true)
	}
	srv.Protocols.SetUnencryptedHTTP2(false)
	srv.Protocols.SetHTTP2(true)
}

// fits tells the log if the certificate is not for the host in the hub's URL.
func (s *Server) fits(base feed.Base) {
	if files := s.certificates[publicCertificate]; files != nil {
		if err := files.Names(hostName(string(base))); err != nil {
			s.log.Warn("the certificate is not for the host in the hub's URL, so clients will refuse it", "url", base, "err", err)
		}
	}
}

// strict makes browsers use this host only by TLS from now on, for a year (HSTS, RFC 6797).
var strict = []string{"max-age=31536000"}

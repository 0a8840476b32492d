package server

import (
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/certificate"
)

// openCertificate opens the certificate if TLS is configured.
func (s *Server) openCertificate() (err error) {
	if s.config.TLSCertFile == "" {
		return nil
	}
	if s.certificate, err = certificate.Open(s.config.TLSCertFile, s.config.TLSKeyFile, s.log); err != nil {
		return fmt.Errorf("Config.TLSCertFile: %w", err)
	}
	promauto.With(s.metrics).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "rshub_certificate_expires_timestamp_seconds", Help: "Expiry of the TLS certificate in use, in seconds since the epoch; only with TLS.",
	}, func() float64 { return float64(s.certificate.Expires().Unix()) })
	return nil
}

// enableTLS enables TLS with a certificate, and HTTP/2 by ALPN.
func enableTLS(srv *http.Server, files *certificate.Files) {
	srv.TLSConfig = files.Config()
	srv.Protocols.SetUnencryptedHTTP2(false)
	srv.Protocols.SetHTTP2(true)
}

// warnCertificateName logs a warning if the certificate is not valid for the host in base.
func (s *Server) warnCertificateName(base feed.Base) {
	if s.certificate != nil {
		if err := s.certificate.VerifyHost(hostName(string(base))); err != nil {
			s.log.Warn("the certificate is not valid for the host in the hub's URL, so clients will refuse it", "url", base, "err", err)
		}
	}
}

// strict is the HSTS header (RFC 6797): browsers use only TLS for this host for a year.
var strict = []string{"max-age=31536000"}

package server

import (
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/internal/certificate"
)

// openCertificate opens the files that c names, if it names some. c has been checked.
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

// secure makes srv speak TLS with a certificate, and HTTP/2 with whom asks for it (ALPN).
func secure(srv *http.Server, files *certificate.Files) {
	srv.TLSConfig = files.Config()
	srv.Protocols.SetUnencryptedHTTP2(false)
	srv.Protocols.SetHTTP2(true)
}

// fits tells the log if the certificate is not for the host in the hub's URL.
func (s *Server) fits(base feed.Base) {
	if s.certificate != nil {
		if err := s.certificate.Names(hostName(string(base))); err != nil {
			s.log.Warn("the certificate is not for the host in the hub's URL, so clients will refuse it", "url", base, "err", err)
		}
	}
}

// strict makes browsers use this host only by TLS from now on, for a year (HSTS, RFC 6797).
var strict = []string{"max-age=31536000"}

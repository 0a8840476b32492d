package main

import (
	"net"
	"os"
	"regexp"
	"strings"

	"github.com/rshub/rshub/server"
)

// jidForm is the form of a JID without a resource, and domainForm that of its domain. A server
// may refuse more.
var (
	domainForm = regexp.MustCompile(`^[^\s"&'/:<>@]{1,255}$`)
	jidForm    = regexp.MustCompile(`^([^\s"&'/:<>@]{1,255}@)?[^\s"&'/:<>@]{1,255}$`)
)

// checkXMPP checks what is published over XMPP, and reads the file of the secret, if there is
// one.
func (c *config) checkXMPP(p *problems) {
	if c.XMPPNodes != "set" && c.XMPPNodes != "topic" {
		p.add("RSHUB_XMPP_NODES", "is %q; it is set or topic", c.XMPPNodes)
	}
	if c.XMPPMaxStanza < server.MinStanza || c.XMPPMaxStanza > 100<<20 {
		p.add("RSHUB_XMPP_MAX_STANZA", "is %d bytes; it is %d bytes to 100MiB", c.XMPPMaxStanza, server.MinStanza)
	}
	checkSets(p, "RSHUB_XMPP_SETS", c.XMPPSets)
	seen := map[string]bool{}
	for _, set := range c.XMPPSets {
		if seen[set] {
			p.add("RSHUB_XMPP_SETS", "has %s twice", set)
		}
		seen[set] = true
	}
	if c.XMPPSecretFile != "" {
		text, err := os.ReadFile(c.XMPPSecretFile)
		switch {
		case c.XMPPSecret != "":
			p.add("RSHUB_XMPP_SECRET_FILE", "and RSHUB_XMPP_SECRET are both set: set one of them")
		case err != nil:
			p.add("RSHUB_XMPP_SECRET_FILE", "cannot be read: %w", err)
			return
		default:
			c.XMPPSecret = strings.TrimSpace(string(text))
		}
	}
	if c.XMPPServer == "" {
		if c.XMPPDomain != "" || c.XMPPSecret != "" || c.XMPPService != "" || len(c.XMPPSets) > 0 {
			p.add("RSHUB_XMPP_SERVER", "is empty, and other variables of XMPP are set: set it, too")
		}
		return
	}
	if host, port, err := net.SplitHostPort(c.XMPPServer); err != nil || host == "" || port == "" {
		p.add("RSHUB_XMPP_SERVER", "is %q; it is HOST:PORT, such as 127.0.0.1:5347", c.XMPPServer)
	}
	if !domainForm.MatchString(c.XMPPDomain) {
		p.add("RSHUB_XMPP_DOMAIN", "is %q; it is a domain such as rshub.example.org", c.XMPPDomain)
	}
	if !jidForm.MatchString(c.XMPPService) {
		p.add("RSHUB_XMPP_SERVICE", "is %q; it is a JID such as pubsub.example.org", c.XMPPService)
	}
	if c.XMPPSecret == "" {
		p.add("RSHUB_XMPP_SECRET", "is empty: set it, or RSHUB_XMPP_SECRET_FILE")
	}
	if len(c.XMPPSets) == 0 {
		p.add("RSHUB_XMPP_SETS", "is empty: name the sets that are published over XMPP")
	}
}

// xmpp returns what is published over XMPP.
func (c *config) xmpp() server.XMPP {
	return server.XMPP{
		Server: c.XMPPServer, Domain: c.XMPPDomain, Secret: c.XMPPSecret, Service: c.XMPPService,
		Sets: c.XMPPSets, Topics: c.XMPPNodes == "topic", MaxStanza: int(c.XMPPMaxStanza),
	}
}

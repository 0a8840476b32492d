package xmpp

import (
	"strconv"

	"github.com/rshub/rshub/feed"
	"github.com/rshub/rshub/resourcesync"
)

// maxItems is how many items a node keeps that the hub creates. Services have bounds of their
// own; that of Prosody is 256.
const maxItems = 20

// frame returns an iq for the pubsub service.
func frame(a *Account, id string, content []byte) []byte {
	b := appendAttr([]byte("<iq type='set'"), "from", a.Domain)
	b = appendAttr(appendAttr(b, "to", a.Service), "id", id)
	b = append(append(b, '>'), content...)
	return append(b, "</iq>"...)
}

// publication returns the content of an iq that publishes an item (XEP-0060 section 7.1).
func publication(node, item string, payload []byte) []byte {
	b := make([]byte, 0, len(payload)+300)
	b = appendAttr(append(b, "<pubsub xmlns='"+nsPubsub+"'><publish"...), "node", node)
	b = appendAttr(append(b, "><item"...), "id", item)
	b = append(append(b, '>'), payload...)
	return append(b, "</item></publish></pubsub>"...)
}

// creation returns the content of an iq that creates a node (XEP-0060 section 8.1), as a
// service makes them, or with a title and room for items that are kept.
func creation(node, title string, plain bool) []byte {
	b := appendAttr([]byte("<pubsub xmlns='"+nsPubsub+"'><create"), "node", node)
	b = append(b, "/>"...)
	if !plain {
		b = append(b, "<configure><x xmlns='jabber:x:data' type='submit'>"...)
		for _, f := range [][2]string{
			{"FORM_TYPE", "http://jabber.org/protocol/pubsub#node_config"},
			{"pubsub#title", title},
			{"pubsub#type", sitemap},
			{"pubsub#persist_items", "1"},
			{"pubsub#max_items", strconv.Itoa(maxItems)},
			{"pubsub#deliver_payloads", "1"},
		} {
			b = appendAttr(append(b, "<field"...), "var", f[0])
			if f[0] == "FORM_TYPE" {
				b = append(b, " type='hidden'"...)
			}
			b = appendText(append(b, "><value>"...), f[1])
			b = append(b, "</value></field>"...)
		}
		b = append(b, "</x></configure>"...)
	}
	return append(b, "</pubsub>"...)
}

// sitemap is the namespace of the payloads.
const sitemap = "http://www.sitemaps.org/schemas/sitemap/0.9"

// node returns the name of the node of a set.
func (p *Publisher) node(set string) string {
	if p.opts.Topics {
		return p.base.Topic(set)
	}
	return set
}

// links are the links of each notification of a set (Change Notification section 3).
func links(base feed.Base, set string) []resourcesync.Link {
	return []resourcesync.Link{{Rel: "up", Href: base.CapabilityList(set)}, {Rel: "self", Href: base.Topic(set)}}
}

// appendAttr appends an attribute.
func appendAttr(dst []byte, name, value string) []byte {
	dst = append(append(append(dst, ' '), name...), `="`...)
	return append(appendText(dst, value), '"')
}

// appendText appends text as XML. A character that XML cannot carry becomes U+FFFD.
func appendText(dst []byte, s string) []byte {
	for _, r := range s {
		switch {
		case r == '&':
			dst = append(dst, "&amp;"...)
		case r == '<':
			dst = append(dst, "&lt;"...)
		case r == '>':
			dst = append(dst, "&gt;"...)
		case r == '"':
			dst = append(dst, "&quot;"...)
		case r == '\t' || r == '\n' || r == '\r':
			dst = append(strconv.AppendInt(append(dst, "&#"...), int64(r), 10), ';')
		case r < 0x20 || r == 0xFFFE || r == 0xFFFF:
			dst = append(dst, "\uFFFD"...)
		default:
			dst = append(dst, string(r)...)
		}
	}
	return dst
}

package chart

import (
	"strings"
	"testing"
)

// TestInvalidValues checks that misspelled and contradictory values are refused.
func TestInvalidValues(t *testing.T) {
	for _, test := range []struct{ name, values, want string }{
		{"misspelled", "replicacount: 2", "'replicacount' not allowed"},
		{"no image", `image: {repository: ""}`, "image.repository is not set"},
		{"replicas instead of replicaCount", "replicas: 2", "replicas is not a value of this chart; use replicaCount"},
		{"misspelled member", "redis: {uri: redis://redis}", "'uri' not allowed"},
		{"misspelled variable", "config: {RSHUB_RETENTON_AGE: 1h}", "'RSHUB_RETENTON_AGE' not allowed"},
		{"misspelled in a list", "networkPolicy: {from: [{podSelectors: {}}]}", "'podSelectors' not allowed"},
		{"variable of the chart", "config: {RSHUB_LISTEN: ':9'}", "'RSHUB_LISTEN' not allowed"},
		{"replicaCount is a word", "replicaCount: two", "want integer"},
		{"baseURL without a scheme", "baseURL: hub.example.org", "/baseURL"},
		{"unknown right", "tokens: {make: {publish: {rights: write}}}", "/tokens/make/publish/rights"},
		{"token named anyone", "tokens: {make: {anyone: {rights: operate}}}", "anyone"},
		{"short token", "tokens: {make: {publish: {token: secret}}}", "/tokens/make/publish/token"},
		{"unknown word for insecure", "insecure: yes-please", "anyone-may-publish"},
		{"invalid size", "persistence: {size: 8GB}", "/persistence/size"},
		{"successThreshold of liveness", "probes: {liveness: {successThreshold: 2}}", "'successThreshold' not allowed"},
		{"successThreshold of startup", "probes: {startup: {successThreshold: 2}}", "'successThreshold' not allowed"},
		{"readiness path", "probes: {readiness: {path: /metrics}}", "/probes/readiness/path"},

		{"several hubs without Redis", "replicaCount: 3", "replicaCount is 3, and several hubs require Redis; set redis.url"},
		{"autoscaling without Redis", "autoscaling: {enabled: true}", "autoscaling requires Redis"},
		{"NATS without Redis", "nats: {url: nats://nats}", "nats requires Redis"},
		{"claim and Redis", "{redis: {url: redis://redis}, persistence: {existingClaim: data}}", "rshub copy"},
		{"Redis twice", "redis: {url: redis://redis, existingSecret: redis}", "redis.url and redis.existingSecret are both set"},
		{"NATS twice", "{redis: {url: redis://redis}, nats: {url: nats://nats, existingSecret: nats}}", "nats.url and nats.existingSecret are both set"},
		{"credentials without NATS", "nats: {credentialsSecret: creds}", "require nats.url or nats.existingSecret"},
		{"RSHUB_REDIS_WAIT without Redis", "config: {RSHUB_REDIS_WAIT: 1}", "config.RSHUB_REDIS_WAIT requires Redis"},
		{"minReplicas above maxReplicas", "{redis: {url: redis://redis}, autoscaling: {enabled: true, minReplicas: 20}}", "minReplicas is 20, want at most autoscaling.maxReplicas, 10"},
		{"no metric", "{redis: {url: redis://redis}, autoscaling: {enabled: true, targetCPUUtilizationPercentage: 0}}", "autoscaling has no metric"},
		{"CPU target without a request", "{redis: {url: redis://redis}, autoscaling: {enabled: true}, resources: {requests: {cpu: null}}}", "autoscaling by cpu requires resources.requests.cpu"},
		{"no tokens", "tokens: {create: false}", "anyone could publish"},
		{"insecure with tokens", "{insecure: anyone-may-publish, tokens: {existingSecret: ours}}", "insecure and tokens.existingSecret are both set"},
		{"insecure with an Ingress", "{insecure: anyone-may-publish, ingress: {enabled: true, host: hub.example.org}}", "of type ClusterIP would let anyone publish"},
		{"insecure with a NodePort", "{insecure: anyone-may-publish, baseURL: 'http://hub', service: {type: NodePort}}", "of type NodePort would let anyone"},
		{"test without its token", "tokens: {make: {publish: null}}", "helm test requires the tokens publish and follow"},
		{"test may not publish", `tokens: {make: {publish: {rights: "publish:library.*, follow:*"}}}`, "tokens.make.publish.rights do not allow helm test to publish helm-test"},
		{"test may not follow", "tokens: {make: {follow: {rights: follow:helm}}}", "tokens.make.follow.rights do not allow helm test to follow helm-test"},
		{"anyone with an existing Secret", "tokens: {anyone: follow:*, existingSecret: ours}", "add a line \"anyone - follow:*\" there"},
		{"anyone with insecure", "{insecure: anyone-may-publish, tokens: {anyone: follow:*}}", "tokens.anyone has no effect with insecure"},
		{"token with an existing Secret", "tokens: {make: {publish: {token: rshub_AAAAAAAAAAAAAAAAAAAA}}, existingSecret: ours}", "tokens.make.publish.token has no effect with tokens.existingSecret"},
		{"duplicate token", "tokens: {make: {publish: {token: rshub_AAAAAAAAAAAAAAAAAAAA}, follow: {token: rshub_AAAAAAAAAAAAAAAAAAAA}}}", "tokens.make.follow and tokens.make.publish have the same token"},
		{"Ingress without a host", "ingress: {enabled: true}", "ingress.enabled requires ingress.host"},
		{"certificate without TLS", "ingress: {enabled: true, host: h, tls: false, tlsSecret: c}", "ingress.tlsSecret has no effect with ingress.tls=false"},
		{"HTTPRoute without a Gateway", "httpRoute: {enabled: true}", "httpRoute.enabled requires httpRoute.parentRefs"},
		{"two hosts", "{ingress: {enabled: true, host: a.org}, httpRoute: {enabled: true, parentRefs: [{name: g}], hostnames: [b.org]}}", "a hub has one URL; set baseURL"},
		{"LoadBalancer without a URL", "service: {type: LoadBalancer}", "service.type LoadBalancer requires baseURL"},
		{"loadBalancerClass of a ClusterIP", "service: {loadBalancerClass: internal}", "have no effect with service.type ClusterIP"},
		{"loadBalancerSourceRanges of a NodePort", "{baseURL: 'http://hub', service: {type: NodePort, loadBalancerSourceRanges: [198.51.100.0/24]}}", "have no effect with service.type NodePort"},
		{"externalTrafficPolicy of a ClusterIP", "service: {externalTrafficPolicy: Local}", "externalTrafficPolicy has no effect with service.type ClusterIP"},
		{"closed port of Redis", "{networkPolicy: {enabled: true}, redis: {url: 'rediss://hub:a:1@redis:6380/0?ca_file=/a:2'}}", "redis.url has the port 6380, and networkPolicy.redisPorts allows only 6379, 26379"},
		{"closed port of Sentinel", "{networkPolicy: {enabled: true}, redis: {url: 'redis-sentinel://a:26379,b:26380/main'}}", "redis.url has the port 26380"},
		{"closed port of NATS", "{networkPolicy: {enabled: true}, redis: {url: 'redis://redis:6379'}, nats: {url: 'nats://a:4222,[fd00::1]:4223'}}", "nats.url has the port 4223"},
		{"metrics behind the network policy", "{serviceMonitor: {enabled: true}, networkPolicy: {enabled: true}}", "add Prometheus to networkPolicy.opsFrom"},
		{"alerts without a job", "prometheusRule: {enabled: true}", "set serviceMonitor.enabled, or prometheusRule.matchers"},
		{"invalid matchers", "prometheusRule: {matchers: rshub}", "/prometheusRule/matchers"},
		{"variable of the chart in extraEnv", "extraEnv: [{name: RSHUB_DATA, value: /x}]", "extraEnv has RSHUB_DATA"},
		{"drain delay in extraEnv", "extraEnv: [{name: RSHUB_DRAIN_DELAY, value: 5s}]", "extraEnv has RSHUB_DRAIN_DELAY; use drain.preStopSeconds"},
		{"variable in config and extraEnv", "{config: {RSHUB_PREFIX: a}, extraEnv: [{name: RSHUB_PREFIX, value: b}]}", "extraEnv and config both have RSHUB_PREFIX"},
		{"unknown alert", "prometheusRule: {alerts: {RshubNotRaedy: {enabled: false}}}", "RshubNotRaedy: no such alert; want one of "},
	} {
		t.Run(test.name, func(t *testing.T) {
			texts, err := render(t, parse(t, test.values), installed)
			if err == nil {
				t.Fatalf("render: got %d files, want an error", len(texts))
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("render: got error %v, want one with %q", err, test.want)
			}
		})
	}
}

// TestAllErrorsTogether checks that all contradictions are reported together.
func TestAllErrorsTogether(t *testing.T) {
	_, err := render(t, parse(t, "{replicaCount: 2, nats: {url: nats://nats}, ingress: {enabled: true}}"), installed)
	if err == nil || strings.Count(err.Error(), "\n- ") != 3 {
		t.Errorf("render: got error %v, want one with three entries", err)
	}
}

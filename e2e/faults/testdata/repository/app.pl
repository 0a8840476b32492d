# A repository that speaks OAI-PMH: app.pl PORT FILE

use strict;
use warnings;

use Dancer;
use Catmandu;
use Dancer::Plugin::Catmandu::OAI;

my ($port, $file) = splice @ARGV, 0, 2;

set server       => '127.0.0.1';
set port         => $port;
set startup_info => 0;
set logger       => 'console';
set log          => 'warning';

Catmandu->config->{store}{records} = {package => 'Records', options => {file => $file}};

my $dc = <<'DC';
<oai_dc:dc xmlns:oai_dc="http://www.openarchives.org/OAI/2.0/oai_dc/" xmlns:dc="http://purl.org/dc/elements/1.1/">
<dc:title>[% title | html %]</dc:title>
</oai_dc:dc>
DC

oai_provider '/oai',
    store                => 'records',
    bag                  => 'data',
    datestamp_field      => 'datestamp',
    repositoryName       => 'Records &amp; others',
    adminEmail           => 'someone@example.org',
    deletedRecord        => 'persistent',
    repositoryIdentifier => 'example.org',
    delimiter            => ':',
    sampleIdentifier     => 'oai:example.org:1',
    limit                => 50,
    metadata_formats     => [
        {
            metadataPrefix    => 'oai_dc',
            schema            => 'http://www.openarchives.org/OAI/2.0/oai_dc.xsd',
            metadataNamespace => 'http://www.openarchives.org/OAI/2.0/oai_dc/',
            template          => \$dc,
        },
    ],
    deleted => sub { $_[0]->{deleted} };

dance;

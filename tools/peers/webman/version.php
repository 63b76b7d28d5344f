<?php
// Prints which webman, which PHP and which event loop.
require getenv('VENDOR') . '/autoload.php';

$loop = extension_loaded('event') ? 'ext-event ' . phpversion('event') : 'select';
$version = Composer\InstalledVersions::getPrettyVersion('workerman/webman-framework');
echo 'webman ', $version, ' on Workerman ', Workerman\Worker::VERSION, ', PHP ', PHP_VERSION, ', event loop ', $loop, "\n";
